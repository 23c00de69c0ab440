package torch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/nccl"
)

// vllmKey is the key of the first object that rank 0 of a StatelessProcessGroup
// broadcasts. PyNcclCommunicator broadcasts the communicator's id first.
const vllmKey = "broadcast_from/0/0"

// vllmClass is the module and class of that object.
var vllmClass = [2]string{"vllm.distributed.device_communicators.pynccl_wrapper", "ncclUniqueId"}

// JoinVLLM makes this process a rank of a group that vLLM makes with
// StatelessProcessGroup.create and PyNcclCommunicator, as trainers do that send weights to
// inference servers. Rank 0 serves the store. JoinVLLM returns when it has connected to
// the store. The first call, or Connect, makes the communicator and performs
// PyNcclCommunicator's first AllReduce. The caller closes the Group.
func JoinVLLM(ctx context.Context, cfg Config) (*Group, error) {
	s, wrong := cfg.fill()
	s.hosts = cfg.Rank == 0 // torchrun's agent never serves these groups
	key := cfg.IDKey
	if key == "" {
		key = vllmKey
	}
	return join(ctx, cfg, s, wrong, idExchange{op: "torch.JoinVLLM", keys: []string{key}, encode: pickled, decode: unpickled, warm: true})
}

// The operations of Python's pickle, protocols 3 to 5, in an object that consists of
// names and bytes. The comments list the operands.
const (
	pickleProto      = 0x80 // version
	pickleFrame      = 0x95 // u64 length
	pickleShortText  = 0x8c // u8 length, text
	pickleText       = 'X'  // u32 length, text
	pickleGlobal     = 'c'  // line, line
	pickleName       = 0x93 // takes two texts from the stack
	pickleShortBytes = 'C'  // u8 length, bytes
	pickleBytes      = 'B'  // u32 length, bytes
	pickleLongBytes  = 0x8e // u64 length, bytes
	pickleDict       = '}'
	pickleTuple2     = 0x86
	pickleReduce     = 'R'
	pickleMemo       = 0x94
	pickleShortPut   = 'q' // u8
	picklePut        = 'r' // u32
	pickleStop       = '.'
)

// pickled encodes an id as Python pickles vLLM's class for it, a ctypes structure.
func pickled(id nccl.UniqueID) []byte {
	b := []byte{pickleProto, 4}
	name := func(module, name string) {
		for _, text := range []string{module, name} {
			b = append(append(b, pickleShortText, byte(len(text))), text...)
		}
		b = append(b, pickleName)
	}
	name("_ctypes", "_unpickle")
	name(vllmClass[0], vllmClass[1])
	b = append(b, pickleDict, pickleShortBytes, byte(len(id)))
	b = append(b, id[:]...)
	return append(b, pickleTuple2, pickleTuple2, pickleReduce, pickleStop)
}

var errPickle = errors.New("rank 0's value in the store is not a vLLM id")

// unpickled finds the id in a pickle: the only bytes object in it. It only scans the
// operations and executes none.
func unpickled(value []byte) (id nccl.UniqueID, err error) {
	found := false
	for rest := value; len(rest) > 0; {
		op := rest[0]
		rest = rest[1:]
		skip, isBytes, ok := operand(op, rest)
		if !ok || skip > len(rest) {
			return id, fmt.Errorf("%w: operation %#x at byte %d of %d", errPickle, op, len(value)-len(rest)-1, len(value))
		}
		if isBytes {
			n := copy(id[:], rest[skip-min(skip, len(id)):skip])
			if found || n != len(id) || length(op, rest) != len(id) {
				return id, fmt.Errorf("%w: its bytes are not %d", errPickle, len(id))
			}
			found = true
		}
		if rest = rest[skip:]; op == pickleStop {
			if !found || len(rest) > 0 {
				break
			}
			return id, nil
		}
	}
	return id, errPickle
}

// operand returns the number of bytes that follow a pickle opcode as its arguments. isBytes reports
// whether they end in the content of a bytes object. It returns ok false for an opcode that vLLM's
// messages do not contain, and for arguments that are cut off.
func operand(op byte, rest []byte) (skip int, isBytes, ok bool) {
	switch op {
	case pickleProto, pickleShortPut:
		return 1, false, true
	case picklePut:
		return 4, false, true
	case pickleFrame:
		return 8, false, true
	case pickleName, pickleDict, pickleTuple2, pickleReduce, pickleMemo, pickleStop:
		return 0, false, true
	case pickleGlobal:
		lines := 0
		for i, c := range rest {
			if c == '\n' {
				if lines++; lines == 2 {
					return i + 1, false, true
				}
			}
		}
		return 0, false, false
	case pickleShortText, pickleText, pickleShortBytes, pickleBytes, pickleLongBytes:
		n := length(op, rest)
		return prefix(op) + n, op == pickleShortBytes || op == pickleBytes || op == pickleLongBytes, n >= 0
	}
	return 0, false, false
}

// prefix returns the size of an operation's length, in bytes.
func prefix(op byte) int {
	switch op {
	case pickleShortText, pickleShortBytes:
		return 1
	case pickleText, pickleBytes:
		return 4
	}
	return 8
}

// length returns the length of an operation's text or bytes. It is negative if rest is
// shorter.
func length(op byte, rest []byte) int {
	p := prefix(op)
	if len(rest) < p {
		return -1
	}
	var full [8]byte
	copy(full[:], rest[:p])
	n := binary.LittleEndian.Uint64(full[:])
	if n > uint64(len(rest)-p) {
		return -1
	}
	return int(n)
}
