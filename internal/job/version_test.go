package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/internal/engine"
)

// own lists, for each package that has a function ABI, the constants and tables
// that a rank uses for itself: another rank may have other values, and the results
// are the same. Everything else must be in the package's abi.go.
var own = map[string]string{
	"kernel":         "Int8 Uint8 Int32 Uint32 Int64 Uint64 Float16 BFloat16 Float32 Float64 Sum Prod Min Max numOps pieceBytes NumDTypes tables",
	"transport":      "",
	"transport/tcp":  "stagger again tries statusText maxBody smallBody maxMove lingerFor slotEmpty slotCalling slotAnswering slotUp slotFailed keepNotes piece maxEarly copyPiece turns spinFor holdFor askEvery slice burst maxClosed record maxUnproven controlConnect controlTries",
	"segment":        "maxUnproven proofTime retryTime futexOwnerDied bytes page sizeSeals LivenessBytes",
	"engine":         "AllReduce Reduce Broadcast AllGather ReduceScatter Gather Scatter AllToAll Barrier Split Dup Alloc Sum Prod Min Max Avg PreMul most more forming KeepBytes OutOfRange NoSuchDevice maxDevice maxBytes AbandonAfter NoRank EveryRank RootOnly AllButRoot thisRank NumOps NoScaling ByRanks ByFactor least farewellOp mostCauses travelKinds",
	"engine/shm":     "direct readByNone readByRoot readByAll tooLarge minBytes maxSpareBytes posted matched reading delivered cancelled most prefetchMax accBytes allRanks vmreadCallMax exitReportTime",
	"engine/network": "nobody lineBytes keepLetters past Doubling Halving Ring Direct Linear Bruck Tree Chain Dissemination most forSegment forWork forPart forPack forBatch numScratch",
	"engine/hier":    "forSum forBlocks numScratch",
	"control":        "maxHello sendTime version fateTime tries maxEarly verdictTime nonceBytes whatDiffers otherCert helloTime maxPending beatsUnheard lateTime replaceTime gaveUp dialTime linkTime leaveTime leavePace lingerQuiet lingerTime",
	"overlay":        "here left lost Pace probePace probePerRank maxProbePace leftPace suspectDial buildPerRank lookAhead maxCauses maxPositions Silent notListening largeJob Refused Unanswered CutOff Send Dial Unlink Lose Depart Fail Hear",
	"engine/gpu":     "reportWait types ops guardInterval abortTimeout closeLimit closeGrace abortGrace maxKnown maxInflight refill coalesceTime maxCoalesced minPollDelay spinBefore maxAwaitedDelay maxPollDelay costWindow",
}

// TestEveryConstantIsDecided finds constants and tables of which nobody has said
// whether ranks must have them in common: a new one goes into the package's ABI
// function, or, if a rank uses it for itself alone, into the list above.
func TestEveryConstantIsDecided(t *testing.T) {
	for dir, list := range own {
		exempt := strings.Fields(list)
		paths, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(dir), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		declared := make(map[string]token.Position)
		described := make(map[string]bool)
		files := token.NewFileSet()
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Base(path) == "abi.go" {
				ast.Inspect(file, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						described[id.Name] = true
					}
					return true
				})
			}
			inspect(file, func(id *ast.Ident) { declared[id.Name] = files.Position(id.Pos()) })
		}
		for name, at := range declared {
			if name != "_" && !strings.HasPrefix(strings.ToLower(name), "err") && !described[name] && !slices.Contains(exempt, name) {
				t.Errorf("%s: %s: is %s a value that all ranks must have in common? Then package %s must describe it in its ABI function; "+
					"if not, the list in this test must name it", at, dir, name, dir)
			}
		}
		for _, name := range exempt {
			if _, ok := declared[name]; !ok {
				t.Errorf("%s: there is no %s any more", dir, name)
			}
		}
	}
}

// TestFirstBlob has ranks of protocol 1 compare options, as they do: they find that
// this rank is of another one.
func TestFirstBlob(t *testing.T) {
	alikes := map[string]string{"Config.Verify": "set"}
	blob, err := firstBlob(version(""), alikes)
	if err != nil {
		t.Fatal(err)
	}
	var theirs firstCard
	if err := json.Unmarshal(blob, &theirs); err != nil {
		t.Fatal(err)
	}
	err = alike([]card{{alike: alikes}, {alike: theirs.Alike}})
	want := fmt.Sprintf("tutti's protocol (1 where it is not set) is not set on rank 0, and %d (ABI %s) on rank 1; all ranks must have the same",
		Protocol, version("").ABI)
	if err == nil || err.Error() != want || !errors.Is(err, engine.ErrMismatch) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestVersionIsSteady holds that the hash depends on nothing but the ABI.
func TestVersionIsSteady(t *testing.T) {
	if a, b := description(""), description(""); a != b {
		t.Errorf("%s\nand then\n%s", a, b)
	}
	if version("") == version("more") {
		t.Error("what packages above rely on is not in the hash")
	}
}

// inspect finds the constants of a file, also those inside functions, and its
// variables that have a value.
func inspect(file *ast.File, found func(*ast.Ident)) {
	for _, decl := range file.Decls {
		top, _ := decl.(*ast.GenDecl)
		ast.Inspect(decl, func(n ast.Node) bool {
			d, ok := n.(*ast.GenDecl)
			if !ok || d.Tok != token.CONST && (d.Tok != token.VAR || d != top) {
				return true
			}
			for _, s := range d.Specs {
				v, ok := s.(*ast.ValueSpec)
				if !ok || d.Tok == token.VAR && len(v.Values) == 0 {
					continue
				}
				for _, id := range v.Names {
					found(id)
				}
			}
			return true
		})
	}
}
