package ncclsys

// A Lack is a function that a library does not have.
type Lack struct {
	Function string
	Since    string // the version that brought it
}

// Missing lists the functions that tutti uses where they are there, and that this
// library lacks.
func (l *Library) Missing() (list []Lack) {
	for i, s := range symbols {
		if l.fn[i] == 0 {
			list = append(list, Lack{s.name, text(max(s.since, oldest))})
		}
	}
	return list
}

// Candidates lists where Load("") looks, in order.
func Candidates() []string { return candidates() }
