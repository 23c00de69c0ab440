package torch

import (
	"bytes"
	"encoding/hex"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/nccl"
)

// TestPickle decodes pickles that Python wrote, in all protocols since Python 3.0. It refuses every
// shorter or longer pickle.
func TestPickle(t *testing.T) {
	for _, name := range []string{"pickle3.hex", "pickle4.hex"} {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		value, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		id, err := unpickled(value)
		for i, b := range id {
			if err != nil || b != byte(2*i-128) {
				t.Fatalf("%s: byte %d is %d, %v", name, i, b, err)
			}
		}
		for n := range value {
			if _, err := unpickled(value[:n]); err == nil {
				t.Errorf("%s: %d bytes of it are enough", name, n)
			}
		}
		if _, err := unpickled(append(value, '.')); err == nil {
			t.Errorf("%s: too much is not too much", name)
		}
	}
	long := append([]byte{pickleProto, 4, pickleBytes, 129, 0, 0, 0}, make([]byte, 129)...)
	twice := append([]byte{pickleShortBytes, 128}, make([]byte, 128)...)
	for _, bad := range [][]byte{append(long, '.'), append(append(twice, twice...), '.'), {pickleLongBytes, 255, 255, 255, 255, 255, 255, 255, 255, '.'}, {'i'}} {
		if id, err := unpickled(bad); err == nil {
			t.Errorf("%x is taken for %x", bad, id)
		}
	}
}

func FuzzPickle(f *testing.F) {
	f.Add(pickled(nccl.UniqueID{1, 2, 3}))
	f.Fuzz(func(t *testing.T, value []byte) {
		if id, err := unpickled(value); err == nil && !bytes.Contains(value, id[:]) {
			t.Errorf("%x is not in %x", id, value)
		}
	})
}

// TestPickleInPython makes Python load a pickle that Go wrote.
func TestPickleInPython(t *testing.T) {
	var id nccl.UniqueID
	for i := range id {
		id[i] = byte(3 * i)
	}
	if got, err := unpickled(pickled(id)); err != nil || got != id {
		t.Errorf("%x, %v", got, err)
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no Python here")
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", `
import ctypes, pickle, sys, types
class ncclUniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]
names = sys.argv[1].split(".")
for i in range(len(names)):
    sys.modules[".".join(names[:i + 1])] = types.ModuleType(names[i])
ncclUniqueId.__module__ = sys.argv[1]
sys.modules[sys.argv[1]].ncclUniqueId = ncclUniqueId
obj = pickle.loads(sys.stdin.buffer.read())
assert type(obj) is ncclUniqueId
print(bytes(obj).hex())
`, vllmClass[0])
	cmd.Stdin = bytes.NewReader(pickled(id))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || strings.TrimSpace(string(out)) != hex.EncodeToString(id[:]) {
		t.Errorf("%s, %v\n%s", out, err, &errs)
	}
}
