package envvar

import (
	"strings"
	"testing"
)

// env returns a getenv of one variable.
func env(name, value string) func(string) string {
	return func(n string) string {
		if n == name {
			return value
		}
		return ""
	}
}

// names reports whether an error names a variable and its value.
func names(err error, name, value string) bool {
	return err != nil && strings.Contains(err.Error(), name) && strings.Contains(err.Error(), value)
}

func TestBool(t *testing.T) {
	for text, want := range map[string]bool{"": false, "0": false, "false": false, "F": false, "1": true, "true": true, "TRUE": true, "t": true} {
		if got, err := Bool(env("X", text), "X"); got != want || err != nil {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"yes", "on", "2", " 1"} {
		if got, err := Bool(env("X", text), "X"); got || !names(err, "X", text) {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}

func TestInt(t *testing.T) {
	for text, want := range map[string]int{"": 7, "0": 0, "-3": -3, "12": 12} {
		if got, err := Int(env("X", text), "X", 7); got != want || err != nil {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"one", "1.5", "0x10", "99999999999999999999"} {
		if got, err := Int(env("X", text), "X", 7); got != 0 || !names(err, "X", text) {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}

func TestCheck(t *testing.T) {
	for name, right := range map[string]string{HostStaging: "true", Late: "1", NoEncryption: "false", Kernel: "avx2"} {
		for _, text := range []string{"", right} {
			if err := Check(env(name, text)); err != nil {
				t.Error(err)
			}
		}
		if err := Check(env(name, "yes")); !names(err, name, "yes") {
			t.Errorf("%s=yes: %v", name, err)
		}
	}
}
