package process

import (
	"testing"
)

func TestTrustedFolders(t *testing.T) {
	cases := map[string]string{
		"/bin:/usr/bin":           "/bin:/usr/bin",
		"/app/bin:/usr/bin":       "/usr/bin",
		"/app:/application/bin":   "/application/bin",
		":/bin:.:x/y":             "/bin",
		"/usr/../app/venv/bin::/": "/",
		"":                        SearchPath,
		"/app/bin":                SearchPath,
	}
	for search, want := range cases {
		if got := trustedFolders(search, "/app"); got != want {
			t.Errorf("%q: got %q, want %q", search, got, want)
		}
	}
}
