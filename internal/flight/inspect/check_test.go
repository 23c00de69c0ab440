package inspect_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/flight/inspect"
)

// head returns the beginning of a dump of rank 0 of size ranks, up to its
// operations.
func head(size string) string {
	return fmt.Sprintf(`{"tutti_flight":1,"comm":"world","rank":0,"size":%s,"began":"2026-01-02T03:04:05Z","at":10,`, size)
}

// TestDamaged checks that dumps with values that no recorder writes are refused.
// The error names the file and the field.
func TestDamaged(t *testing.T) {
	op := func(fields string) string { return head("2") + `"ops":[{"seq":1,"verb":"Barrier",` + fields + `}]}` }
	message := func(fields string) string {
		return head("2") + `"ops":[],"messages":[{"seq":1,"verb":"Recv",` + fields + `}]}`
	}
	dir := t.TempDir()
	for field, text := range map[string]string{
		"size is 4611686018427387904":    head("4611686018427387904") + `"ops":[]}`,
		"size is 9000000000":             head("9000000000") + `"ops":[]}`,
		"size is 0":                      head("0") + `"ops":[]}`,
		"rank is 2; the Comm's ranks":    strings.Replace(head("2"), `"rank":0`, `"rank":2`, 1) + `"ops":[]}`,
		"rank is -1":                     strings.Replace(head("2"), `"rank":0`, `"rank":-1`, 1) + `"ops":[]}`,
		"began, the time":                `{"tutti_flight":1,"comm":"world","rank":0,"size":2,"at":10,"ops":[]}`,
		"at is -10":                      strings.Replace(head("2"), `"at":10`, `"at":-10`, 1) + `"ops":[]}`,
		"behind[1] is 7":                 head("2") + `"behind":[1,7],"ops":[]}`,
		"ops[0]: seq is 0":               head("2") + `"ops":[{"verb":"Barrier","state":"done"}]}`,
		"ops[0]: verb is missing":        head("2") + `"ops":[{"seq":1,"state":"done"}]}`,
		`ops[0]: state is "gone"`:        op(`"state":"gone"`),
		"ops[0]: root is 2":              op(`"state":"done","root":2`),
		"ops[0]: queued, start and end":  op(`"state":"done","start":-1`),
		"ops[0]: json: cannot unmarshal": op(`"state":"done","start":"soon"`),
		"messages[0]: peer is -2":        message(`"state":"running","peer":-2`),
		"messages[0]: peer is 2":         message(`"state":"running","peer":2`),
		"ops has 65537 entries":          head("2") + `"ops":[{}` + strings.Repeat(",{}", 1<<16) + `]}`,
		"longer than 16 MiB":             head("2") + `"host":"` + strings.Repeat("h", 17<<20) + `","ops":[]}`,
	} {
		file := filepath.Join(dir, "dump.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := inspect.Read([]string{file}); err == nil || !strings.Contains(err.Error(), field) || !strings.Contains(err.Error(), file) {
			t.Errorf("%v; want %q and the file", err, field)
		}
	}
}

// TestExtremes renders dumps with extreme but possible values: the last operation
// number, centuries between clocks, a communicator of a billion ranks, unsorted
// operations.
func TestExtremes(t *testing.T) {
	const last = `{"seq":18446744073709551615,"verb":"AllReduce","state":"running","start":5,"end":1}`
	for name, text := range map[string]string{
		"number":    head("1") + `"ops":[` + last + `]}`,
		"times":     head("1") + `"ops":[{"seq":1,"verb":"Barrier","state":"running","start":9223372036854775807}]}`,
		"centuries": head("1") + `"ops":[]}` + strings.Replace(head("2"), "2026", "0001", 1) + `"ops":[{"seq":1,"verb":"Barrier","state":"running","start":5}]}`,
		"size":      head("1073741824") + `"ops":[` + last + `]}`,
		"order":     head("1") + `"ops":[` + last + `,{"seq":3,"verb":"Barrier","state":"done"},{"seq":3,"verb":"Bcast","state":"queued"}]}`,
		"letters":   head("1") + `"ops":[{"seq":1,"verb":"ああああああああ\u001b[2J","state":"running","start":5}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			if shown, _ := decodeAndRender(t, []byte(text)); !shown {
				t.Error("it was refused")
			}
		})
	}
}

// TestUnanswered checks that messages are paired by rank, tag and direction.
func TestUnanswered(t *testing.T) {
	dump := func(rank int, messages string) string {
		return strings.Replace(head("2"), `"rank":0`, fmt.Sprintf(`"rank":%d`, rank), 1) + `"ops":[],"messages":[` + messages + `]}`
	}
	dumps, err := inspect.Decode(strings.NewReader(
		dump(0, `{"seq":1,"verb":"Recv","peer":1,"tag":3,"state":"running"},{"seq":2,"verb":"Recv","peer":1,"tag":4,"state":"running"}`) +
			dump(1, `{"seq":1,"verb":"Recv","peer":0,"tag":3,"state":"running"},{"seq":2,"verb":"Send","peer":0,"tag":4,"state":"running"}`)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range inspect.Comms(dumps)[0].Diagnose().Findings {
		got = append(got, f.Text)
	}
	want := "Rank 0 waits in Recv from rank 1, tag 3, and rank 1 has not sent it.|Rank 1 waits in Recv from rank 0, tag 3, and rank 0 has not sent it."
	if strings.Join(got, "|") != want {
		t.Errorf("%q", got)
	}
}

// decodeAndRender decodes dumps and writes all forms of the report, if they are
// valid. It returns whether they were valid, and how many bytes it wrote.
func decodeAndRender(t *testing.T, text []byte) (shown bool, size int) {
	t.Helper()
	dumps, err := inspect.Decode(bytes.NewReader(text))
	if err != nil || len(dumps) == 0 {
		return false, 0
	}
	comms := inspect.Comms(dumps)
	var words, page, trace bytes.Buffer
	if err := errors.Join(inspect.Text(&words, comms), inspect.Page(&page, comms), inspect.Trace(&trace, comms)); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(trace.Bytes()) {
		t.Errorf("the trace is not JSON: %.300s", &trace)
	}
	for _, bad := range []string{"NaN", "Inf", "ZgotmplZ"} {
		if strings.Contains(page.String(), bad) && !bytes.Contains(text, []byte(bad)) {
			t.Errorf("%s is on the page", bad)
		}
	}
	if strings.ContainsAny(words.String(), "\x1b\a\b\r") {
		t.Errorf("control characters are in the text: %q", words.String())
	}
	for _, d := range dumps {
		_ = inspect.Where(d)
	}
	return true, words.Len() + page.Len() + trace.Len()
}

// FuzzDecode reads damaged dumps and renders the valid ones. The report may have at most
// a fixed number of bytes, plus a constant factor times the size of the dumps.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(head("2") + `"error":{"kind":"lost","rank":1,"lost":[1,-1,9],"text":"rank 1 is lost"},"closed":true,"ops":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		const most, perByte = 4 << 20, 4096
		if shown, size := decodeAndRender(t, text); shown && size > most+perByte*len(text) {
			t.Errorf("%d bytes of dumps made a report of %d bytes", len(text), size)
		}
	})
}

// FuzzPage varies single values of an otherwise valid dump. All forms of the report
// must be valid for them.
func FuzzPage(f *testing.F) {
	f.Add(0, 2, uint64(1), 1, int64(5), int64(6), int64(10), int64(1_700_000_000), "AllReduce", "running")
	f.Add(0, 1<<30, ^uint64(0), 0, int64(1)<<62, int64(1), int64(1)<<62, int64(-62_135_596_799), "Recv", "failed")
	f.Fuzz(func(t *testing.T, rank, size int, seq uint64, peer int, start, end, at, began int64, verb, state string) {
		// Two ranks and a second communicator, so that values are compared.
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		for i := range 3 {
			op := map[string]any{"seq": seq + uint64(i), "verb": verb, "state": state, "start": start, "end": end, "peer": peer, "name": verb}
			dump := map[string]any{
				"tutti_flight": 1, "comm": []string{"world", "world", verb}[i], "rank": rank + i, "size": size, "at": at,
				"began": unixTime(began + int64(i)*at), "host": verb, "ops": []any{op}, "messages": []any{op, op},
			}
			if err := e.Encode(dump); err != nil {
				t.Skip(err)
			}
		}
		decodeAndRender(t, b.Bytes())
		if dumps, err := inspect.Decode(io.LimitReader(&b, int64(b.Len()/2))); err == nil {
			inspect.Comms(dumps)
		}
	})
}

// unixTime returns a time within the years that JSON can represent.
func unixTime(seconds int64) time.Time {
	const first, last = -62_135_596_799, 253_402_300_799
	return time.Unix(min(max(seconds, first), last), 0).UTC()
}
