package tutti_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docFiles returns the files of this repository that match, without those that git ignores.
func docFiles(t *testing.T, match func(path string) bool) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path != "." && strings.HasPrefix(d.Name(), ".") || path == "out" || path == "shared"):
			return filepath.SkipDir
		case !d.IsDir() && match(path):
			list = append(list, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Fatal("no file matches")
	}
	return list
}

// readText returns a file's text.
func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	mdLink    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	mdHeading = regexp.MustCompile("(?m)^#+ +(.*)$")
	docPath   = regexp.MustCompile(`\bdocs/[A-Za-z0-9_/-]+\.md\b`)
	variable  = regexp.MustCompile(`\bTUTTI_[A-Z][A-Z_]*[A-Z]\b`)
)

// anchors returns the fragments by which GitHub links to the headings of a page.
func anchors(page string) []string {
	var list []string
	for _, m := range mdHeading.FindAllStringSubmatch(page, -1) {
		list = append(list, strings.Map(func(r rune) rune {
			switch {
			case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
				return r
			case r == ' ':
				return '-'
			}
			return -1
		}, strings.ToLower(m[1])))
	}
	return list
}

// TestDocLinks checks that every relative link of a page leads to a file, and to a
// heading if it has a fragment.
func TestDocLinks(t *testing.T) {
	seen := 0
	for _, path := range docFiles(t, func(path string) bool { return strings.HasSuffix(path, ".md") }) {
		for _, m := range mdLink.FindAllStringSubmatch(readText(t, path), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			seen++
			file, fragment, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", path, m[1])
			} else if fragment != "" && !slices.Contains(anchors(readText(t, target)), fragment) {
				t.Errorf("%s: %s has no heading %q", path, target, fragment)
			}
		}
	}
	if seen == 0 {
		t.Error("no page has a link")
	}
}

// TestDocPaths checks that pages that source files name exist.
func TestDocPaths(t *testing.T) {
	source := func(path string) bool {
		return slices.Contains([]string{".go", ".sh", ".pml", ".c"}, filepath.Ext(path)) || path == "Makefile"
	}
	for _, path := range docFiles(t, source) {
		for _, page := range docPath.FindAllString(readText(t, path), -1) {
			if _, err := os.Stat(page); err != nil && filepath.Base(path) != "docs_test.go" {
				t.Errorf("%s names %s, which does not exist", path, page)
			}
		}
	}
}

// TestErrorsPage checks that the first table of docs/guide/errors.md has one row for every kind of
// error of package tutti, with its meaning and what to do, and no other row.
func TestErrorsPage(t *testing.T) {
	const page = "docs/guide/errors.md"
	var kinds []string
	for _, m := range regexp.MustCompile(`(?m)^\t(Err[A-Z]\w*) += engine\.`).FindAllStringSubmatch(readText(t, "errors.go"), -1) {
		kinds = append(kinds, m[1])
	}
	_, table, _ := strings.Cut(readText(t, page), "| --- | --- | --- |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var rows []string
	for row := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(row, "|\n "), " | ")
		if len(cells) != 3 || cells[1] == "" || cells[2] == "" {
			t.Errorf("%s: a row has not three cells: %s", page, row)
		}
		rows = append(rows, cells[0])
	}
	slices.Sort(kinds)
	slices.Sort(rows)
	if len(kinds) == 0 || !slices.Equal(kinds, rows) {
		t.Errorf("%s has rows for\n%v\nand the kinds are\n%v", page, rows, kinds)
	}
}

// TestEnvironmentPage checks that the tables of docs/guide/environment.md list every variable that the
// programs of this repository use, and no other.
func TestEnvironmentPage(t *testing.T) {
	const page = "docs/guide/environment.md"
	listed := map[string]bool{}
	for line := range strings.Lines(readText(t, page)) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		for _, name := range variable.FindAllString(line, -1) {
			listed[name] = true
		}
	}
	used := map[string]bool{}
	source := func(path string) bool {
		return slices.Contains([]string{".go", ".c", ".h", ".sh", ".py"}, filepath.Ext(path))
	}
	for _, path := range docFiles(t, source) {
		isTest := strings.HasSuffix(path, "_test.go")
		for _, name := range variable.FindAllString(readText(t, path), -1) {
			used[name] = true
			if !listed[name] && !isTest && !strings.HasPrefix(name, "TUTTI_TEST_") {
				t.Errorf("%s uses %s, which %s does not list", path, name, page)
			}
		}
	}
	for name := range listed {
		if !used[name] {
			t.Errorf("%s lists %s, which no source file uses", page, name)
		}
	}
}
