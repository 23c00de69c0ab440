package launch_test

import (
	"context"
	"fmt"

	"github.com/tutti-go/tutti/launch"
)

// Two ranks; rank 1 fails.
func ExampleRun() {
	report, err := launch.Run(context.Background(), launch.Config{
		Command: []string{"sh", "-c", "test $RANK = 0 || exit 3; sleep 60"},
		Ranks:   2,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(report.Code, report.First.Rank, report.First.How)
	// Output: 3 1 exit code 3
}
