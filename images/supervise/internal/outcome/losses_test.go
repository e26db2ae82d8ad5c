package outcome

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"
)

// TestLossesFitAnyMessage: in the form of either program, whatever the paths are.
func TestLossesFitAnyMessage(t *testing.T) {
	for name, text := range map[string]string{
		"plain": "pipe", "long": strings.Repeat("n", 4000), "html": strings.Repeat("<", 90), "umlauts": strings.Repeat("ü", 90),
		"emoji": strings.Repeat("😀", 90), "control": strings.Repeat("\x1b\u202e\n", 40), "no text": strings.Repeat("\xff", 90), "quotes": strings.Repeat(`"\`, 90),
	} {
		t.Run(name, func(t *testing.T) {
			var losses Losses
			for number := range 100 {
				losses.Drop(fmt.Sprint(number, text), "a FIFO")
			}
			if losses.Entries != 100 || len(losses.Named) == 0 || len(losses.Named) > maxLosses {
				t.Errorf("%d, %d named", losses.Entries, len(losses.Named))
			}
			ascii := 0
			for _, loss := range losses.Named {
				ascii += len(loss.ASCIIJSON())
				if strings.ContainsFunc(loss.Path, func(each rune) bool { return !unicode.IsPrint(each) }) {
					t.Errorf("%q", loss.Path)
				}
			}
			marshalled, err := json.Marshal(losses.Named)
			if err != nil || ascii > lossesBytes || len(marshalled) > lossesBytes+2+maxLosses {
				t.Errorf("%d and %d bytes, %v", ascii, len(marshalled), err)
			}
			message := Message{V: 1, Error: strings.Repeat("x", 10_000), DroppedEntries: losses.Entries, Dropped: losses.Named}
			if got := message.Encode(); !json.Valid(got) || len(got) > MessageBytes || !strings.Contains(string(got), `"dropped"`) {
				t.Errorf("%s", got)
			}
		})
	}
}
