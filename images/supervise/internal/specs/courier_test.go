package specs

import (
	"testing"
)

func TestHalvesOfCharacters(t *testing.T) {
	for text, want := range map[string]bool{
		`plain`: false, `\ud83d\ude00`: false, `\\ud83d`: false, `\n\u00e9`: false, `\ud83d`: true, `\ude00`: true,
		`\ud83d\n`: true, `\ud83dx\ude00`: true, `\\\ud83d`: true, `\ud83d\ude00\ude00`: true, `a\`: false, `\ud83`: false,
	} {
		if got := hasLoneSurrogate(text); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
