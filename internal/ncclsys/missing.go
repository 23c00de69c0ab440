package ncclsys

// A MissingFunction is a function that a library does not have.
type MissingFunction struct {
	Function string
	Since    string // the version that introduced it
}

// Missing lists the functions that tutti uses if they exist, and that this library lacks.
func (l *Library) Missing() (list []MissingFunction) {
	for i, s := range symbols {
		if l.fn[i] == 0 {
			list = append(list, MissingFunction{s.name, versionText(max(s.since, oldest))})
		}
	}
	return list
}

// Candidates returns the paths that Load("") tries, in order.
func Candidates() []string { return candidates() }
