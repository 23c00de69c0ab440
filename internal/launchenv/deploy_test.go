package launchenv

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// page reads a file of docs/deploy.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/deploy/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// field returns the value after a word in a text. All occurrences must have the same
// value.
func field(t *testing.T, text, before string) string {
	t.Helper()
	all := regexp.MustCompile(`(?m)`+regexp.QuoteMeta(before)+`"?([^"\s}]+)`).FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		t.Fatalf("%q is not there:\n%s", before, text)
	}
	for _, m := range all {
		if m[1] != all[0][1] {
			t.Fatalf("%q is %s and %s", before, m[1], all[0][1])
		}
	}
	return all[0][1]
}

// TestDeploy parses the environments of the pages in docs/deploy: each host gets the
// node number that the page describes.
func TestDeploy(t *testing.T) {
	slurm, job, torch, unit := page(t, "slurm.sh"), page(t, "job.yaml"), page(t, "pytorchjob.yaml"), page(t, "tutti.env")
	name := field(t, torch, "metadata: {name: ")
	for what, c := range map[string]struct {
		env  map[string]string
		want Hosts
	}{
		"slurm.sh": {
			map[string]string{ // set by srun
				"SLURM_STEP_ID": "0", "SLURM_JOB_ID": "77", "SLURM_NODEID": "1", "SLURM_NNODES": field(t, slurm, "--nodes="),
				"SLURM_JOB_NUM_NODES": field(t, slurm, "--nodes="), "SLURM_JOB_NODELIST": "node[3-4]",
			},
			Hosts{2, 1, "node3:20077"},
		},
		"job.yaml": {
			map[string]string{
				"JOB_COMPLETION_INDEX": "3", // set by Kubernetes
				"TUTTI_NODES":          field(t, job, "TUTTI_NODES, value: "), "TUTTI_ADDR": field(t, job, "TUTTI_ADDR, value: "),
			},
			Hosts{4, 3, "train-0.train:29400"},
		},
		"pytorchjob.yaml": {
			map[string]string{ // set by the operator
				"PET_NNODES": "4", "PET_NODE_RANK": "2", "RANK": "2", "WORLD_SIZE": "32", "MASTER_ADDR": name + "-master-0", "MASTER_PORT": "23456",
			},
			Hosts{4, 2, "train-master-0:23456"},
		},
		"tutti.env": {
			map[string]string{
				"TUTTI_NODES": field(t, unit, "TUTTI_NODES="), "TUTTI_NODE": field(t, unit, "TUTTI_NODE="), "TUTTI_ADDR": field(t, unit, "TUTTI_ADDR="),
			},
			Hosts{2, 0, "host0.example:29400"},
		},
	} {
		if got, wrong := FindHosts(func(k string) string { return c.env[k] }); got != c.want || wrong != "" {
			t.Errorf("%s: %+v, %q; want %+v", what, got, wrong, c.want)
		}
	}
	// The pods of a Job are named after it and reached by the name of their service.
	service, nodes := field(t, job, "metadata: {name: "), field(t, job, "TUTTI_NODES, value: ")
	for before, want := range map[string]string{
		"subdomain: ": service, "job-name: ": service, "completions: ": nodes, "parallelism: ": nodes,
		"TUTTI_ADDR, value: ": fmt.Sprintf("%s-0.%s:29400", service, service),
	} {
		if got := field(t, job, before); got != want {
			t.Errorf("job.yaml: %s%s, want %s", before, got, want)
		}
	}
	for file, text := range map[string]string{"slurm.sh": slurm, "job.yaml": job, "pytorchjob.yaml": torch, "tutti.env": unit} {
		if !strings.Contains(text, "TUTTI_SECRET") {
			t.Errorf("%s: no secret", file)
		}
	}
}
