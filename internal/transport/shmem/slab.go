package shmem

// A slab is the free memory of this rank's part.
type slab struct {
	layout  *layout
	free    [numClasses][]int // offsets of free blocks in the part; the last one was used last
	streams []int             // offsets of chunks that no stream uses
}

func newSlab(l *layout) slab {
	s := slab{layout: l}
	at := l.slabAt
	for i, b := range l.blocks {
		for n := b.count - 1; n >= 0; n-- {
			s.free[i] = append(s.free[i], at+n*b.bytes)
		}
		at += b.bytes * b.count
	}
	for n := l.streams - 1; n >= 0; n-- {
		s.streams = append(s.streams, l.streamsAt+n*l.streamBytes())
	}
	return s
}

// take returns the offset of a block for the given number of bytes, or zero if there is none.
func (s *slab) take(bytes int) int {
	for i, b := range s.layout.blocks {
		if last := len(s.free[i]) - 1; bytes <= b.bytes && last >= 0 {
			at := s.free[i][last]
			s.free[i] = s.free[i][:last]
			return at
		}
	}
	return 0
}

// put frees a block.
func (s *slab) put(at int) {
	end := s.layout.slabAt
	for i, b := range s.layout.blocks {
		if end += b.bytes * b.count; at < end {
			s.free[i] = append(s.free[i], at)
			return
		}
	}
}

// takeStream returns the offset of the chunks of a stream, or zero if there are none.
func (s *slab) takeStream() int {
	last := len(s.streams) - 1
	if last < 0 {
		return 0
	}
	at := s.streams[last]
	s.streams = s.streams[:last]
	return at
}

func (s *slab) putStream(at int) { s.streams = append(s.streams, at) }
