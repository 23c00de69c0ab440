package cuda_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/fakegpu"
)

// control controls the fake libraries; nil: the tests run on real ones.
var control *fakegpu.Control

func TestMain(m *testing.M) {
	if os.Getenv("TUTTI_TEST_PROBE") != "" {
		fmt.Printf("%v", cuda.Available())
		return
	}
	os.Exit(fakegpu.Main(&control, m.Run))
}

// fake returns the fake GPU's control, or skips the test on real libraries.
func fake(t *testing.T) *fakegpu.Control {
	t.Helper()
	if control == nil {
		t.Skip("this test needs the fake GPU")
	}
	t.Cleanup(control.Reset)
	return control
}

// open opens a device for a test. It skips the test if the device is missing, except on the fake GPU. At the
// end of the test it closes the device and reports what is still allocated.
func open(t testing.TB, ordinal int) *cuda.Device {
	t.Helper()
	if n, err := cuda.Devices(); err != nil || ordinal >= n {
		if err == nil || control == nil {
			t.Skipf("device %d is not here: there are %d (%v)", ordinal, n, err)
		}
		t.Fatal(err)
	}
	var before any
	if control != nil {
		before = control.AllLive()
	}
	d, err := cuda.Open(ordinal, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if control != nil && !t.Failed() && control.AllLive() != before {
			t.Errorf("left behind: %v, before: %v", control.AllLive(), before)
		}
	})
	return d
}

func ok(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// must returns a value or ends the test.
func must[V any](v V, err error) func(testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		ok(t, err)
		return v
	}
}

// freeing frees f when the test ends, before the device is closed.
func freeing[V interface{ Free() error }](t testing.TB, v V, err error) V {
	t.Helper()
	ok(t, err)
	t.Cleanup(func() { ok(t, v.Free()) })
	return v
}

func closing[V interface{ Close() error }](t testing.TB, v V, err error) V {
	t.Helper()
	ok(t, err)
	t.Cleanup(func() { ok(t, v.Close()) })
	return v
}
