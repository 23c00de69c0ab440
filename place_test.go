package tutti

import (
	"strings"
	"testing"
)

func TestFindPlace(t *testing.T) {
	for name, c := range map[string]struct {
		env   string
		want  *place
		wrong string
	}{
		"nothing": {"", nil, ""},
		"tutti": {
			"TUTTI_RANK=1 TUTTI_SIZE=4 TUTTI_STORE=127.0.0.1:5 TUTTI_EPOCH=2 RANK=0 WORLD_SIZE=9",
			&place{from: "tutti run", rank: 1, size: 4, store: "127.0.0.1:5", epoch: "2"}, "",
		},
		"torchrun": {
			"RANK=3 WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=29500 OMPI_COMM_WORLD_SIZE=9 OMPI_COMM_WORLD_RANK=1",
			&place{from: "torchrun", rank: 3, size: 4, addr: "h:29500"}, "",
		},
		"torchrun's agent": {
			"RANK=3 WORLD_SIZE=4 MASTER_ADDR=::1 MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RESTART_COUNT=1",
			&place{from: "torchrun", rank: 3, size: 4, store: "[::1]:29500", plain: true, epoch: "1"}, "",
		},
		"torchrun without address": {"RANK=0 WORLD_SIZE=2", &place{from: "torchrun", size: 2}, ""},
		"Open MPI":                 {"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3", &place{from: "Open MPI", rank: 2, size: 3}, ""},
		"PMI":                      {"PMI_RANK=2 PMI_SIZE=3 TUTTI_ADDR=a:1", &place{from: "PMI", rank: 2, size: 3, addr: "a:1"}, ""},
		"Slurm": {
			"SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=3 SLURM_JOB_ID=123456 SLURM_JOB_NODELIST=node[07-09,12],x SLURM_JOB_NUM_NODES=5",
			&place{from: "Slurm", rank: 2, size: 3, addr: "node07:23456"}, "",
		},
		"Slurm, one host": {
			"SLURM_PROCID=2 SLURM_NTASKS=3 SLURM_STEP_ID=0 SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n1 SLURM_JOB_NUM_NODES=1",
			&place{from: "Slurm", rank: 2, size: 3, addr: "127.0.0.1:20007"}, "",
		},
		"Slurm's batch script": {"SLURM_PROCID=0 SLURM_NTASKS=3 SLURM_JOB_ID=7", nil, ""},
		"no rank":              {"WORLD_SIZE=4", nil, "WORLD_SIZE is set but RANK is not"},
		"no number":            {"WORLD_SIZE=4 RANK=one", nil, `RANK is "one"`},
		"no size":              {"WORLD_SIZE=0 RANK=0", nil, `WORLD_SIZE is "0"`},
	} {
		env := make(map[string]string)
		for _, f := range strings.Fields(c.env) {
			k, v, _ := strings.Cut(f, "=")
			env[k] = v
		}
		got, wrong := findPlace(func(k string) string { return env[k] })
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want || !strings.HasPrefix(wrong, c.wrong) || (wrong == "") != (c.wrong == "") {
			t.Errorf("%s: %+v, %q; want %+v, %q", name, got, wrong, c.want, c.wrong)
		}
	}
}

func TestFirstHost(t *testing.T) {
	for list, want := range map[string]string{
		"a": "a", "a,b": "a", "n[1-3]": "n1", "n[01,05]": "n01", "n[7]": "n7", "n[1-2]-ib,x": "n1-ib", "a,n[1-2]": "a", "": "",
	} {
		if got := firstHost(list); got != want {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
	}
}
