package engine

// A Hash is a running 64-bit FNV-1a hash. It begins as HashStart. Ranks compare
// such hashes, so that all packages must compute the same. The hash/fnv package
// is not used on the path of an operation because its state escapes to the heap.
type Hash uint64

// HashStart is the hash of no data.
const HashStart Hash = 14695981039346656037

// hashPrime is the multiplier of 64-bit FNV-1a.
const hashPrime = 1099511628211

// Text adds the bytes of s.
func (h Hash) Text(s string) Hash {
	for i := range len(s) {
		h = (h ^ Hash(s[i])) * hashPrime
	}
	return h
}

// Bytes adds b.
func (h Hash) Bytes(b []byte) Hash {
	for _, v := range b {
		h = (h ^ Hash(v)) * hashPrime
	}
	return h
}

// Uint64 adds the eight bytes of v, the lowest first.
func (h Hash) Uint64(v uint64) Hash {
	for range 8 {
		h = (h ^ Hash(v&0xFF)) * hashPrime
		v >>= 8
	}
	return h
}

// Word adds v in one step. It is faster than Uint64, and not FNV-1a.
func (h Hash) Word(v uint64) Hash {
	h = (h ^ Hash(v)) * hashPrime
	return h ^ h>>29
}

// NonZero returns the hash for use where zero means that there is none.
func (h Hash) NonZero() uint64 { return max(uint64(h), 1) }
