package launchenv

import (
	"fmt"
	"strings"
	"testing"
)

// TestFind reads the variables of each launcher, and incomplete or invalid ones.
func TestFind(t *testing.T) {
	for name, c := range map[string]struct {
		env   string
		want  *Place
		wrong string
	}{
		"nothing": {"", nil, ""},
		"tutti": {
			"TUTTI_RANK=1 TUTTI_SIZE=4 TUTTI_STORE=127.0.0.1:5 TUTTI_ATTEMPT=2 RANK=0 WORLD_SIZE=9",
			&Place{From: "tutti run", Rank: 1, Size: 4, Store: "127.0.0.1:5", Attempt: "2"}, "",
		},
		"torchrun": {
			"RANK=3 WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=29500 OMPI_COMM_WORLD_SIZE=9 OMPI_COMM_WORLD_RANK=1",
			&Place{From: "torchrun", Rank: 3, Size: 4, Addr: "h:29500"}, "",
		},
		"torchrun's agent": {
			"RANK=3 WORLD_SIZE=4 MASTER_ADDR=::1 MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RESTART_COUNT=1",
			&Place{From: "torchrun", Rank: 3, Size: 4, Store: "[::1]:29500", Plain: true, Attempt: "1"}, "",
		},
		"torchrun, one host": {
			"RANK=3 WORLD_SIZE=4 LOCAL_WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True",
			&Place{From: "torchrun", Rank: 3, Size: 4, Store: "h:29500", Plain: true, Local: true}, "",
		},
		"torchrun, several hosts": {
			"RANK=3 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=29500",
			&Place{From: "torchrun", Rank: 3, Size: 4, Addr: "h:29500"}, "",
		},
		"torchrun without address": {"RANK=0 WORLD_SIZE=2", &Place{From: "torchrun", Size: 2}, ""},
		"Open MPI":                 {"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3", &Place{From: "Open MPI", Rank: 2, Size: 3}, ""},
		"PMI":                      {"PMI_RANK=2 PMI_SIZE=3 TUTTI_ADDR=a:1", &Place{From: "PMI", Rank: 2, Size: 3, Addr: "a:1"}, ""},
		"Slurm": {
			"SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=3 SLURM_JOB_ID=123456 SLURM_JOB_NODELIST=node[07-09,12],x SLURM_JOB_NUM_NODES=5",
			&Place{From: "Slurm", Rank: 2, Size: 3, Addr: "node07:23456"}, "",
		},
		"Slurm, one host": {
			"SLURM_PROCID=2 SLURM_NTASKS=3 SLURM_STEP_ID=0 SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n1 SLURM_JOB_NUM_NODES=1",
			&Place{From: "Slurm", Rank: 2, Size: 3, Addr: "127.0.0.1:20007"}, "",
		},
		"Slurm's batch script": {"SLURM_PROCID=0 SLURM_NTASKS=3 SLURM_JOB_ID=7", nil, ""},
		"no rank":              {"WORLD_SIZE=4", nil, "WORLD_SIZE is set but RANK is not"},
		"no number of ranks":   {"RANK=1 MASTER_ADDR=h", nil, "RANK is set but WORLD_SIZE is not"},
		"no number":            {"WORLD_SIZE=4 RANK=one", nil, `RANK is "one"`},
		"no size":              {"WORLD_SIZE=0 RANK=0", nil, `WORLD_SIZE is "0"`},
		"a store, PMI":         {"PMI_RANK=2 PMI_SIZE=3 TUTTI_STORE=s:1 TUTTI_ATTEMPT=4", &Place{From: "PMI", Rank: 2, Size: 3, Store: "s:1", Attempt: "4"}, ""},
		"a store, Slurm": {
			"SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=3 SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n1 TUTTI_STORE=s:1",
			&Place{From: "Slurm", Rank: 2, Size: 3, Store: "s:1"}, "",
		},
		"a store, torchrun": {
			"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1 TORCHELASTIC_USE_AGENT_STORE=True TUTTI_STORE=s:1",
			&Place{From: "torchrun", Size: 2, Store: "s:1"}, "",
		},
		"no store's address":   {"TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_STORE=h", nil, `TUTTI_STORE is "h", not host:port`},
		"no address":           {"TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_ADDR=h", nil, `TUTTI_ADDR is "h", not host:port`},
		"no address, PMI":      {"PMI_RANK=2 PMI_SIZE=3 TUTTI_ADDR=h", nil, `TUTTI_ADDR is "h", not host:port`},
		"no address, torchrun": {"RANK=0 WORLD_SIZE=2 TUTTI_ADDR=h", nil, `TUTTI_ADDR is "h", not host:port`},
		"no address, Slurm":    {"SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=3 TUTTI_ADDR=h", nil, `TUTTI_ADDR is "h", not host:port`},
		"no attempt":           {"TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_ATTEMPT=x", nil, `TUTTI_ATTEMPT is "x", not the number`},
		"negative attempt":     {"TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_EPOCH=-1", nil, `TUTTI_EPOCH is "-1", not the number`},
	} {
		env := make(map[string]string)
		for _, f := range strings.Fields(c.env) {
			k, v, _ := strings.Cut(f, "=")
			env[k] = v
		}
		got, wrong := Find(func(k string) string { return env[k] })
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want || !strings.HasPrefix(wrong, c.wrong) || (wrong == "") != (c.wrong == "") {
			t.Errorf("%s: %+v, %q; want %+v, %q", name, got, wrong, c.want, c.wrong)
		}
	}
}

func TestFirstHost(t *testing.T) {
	for list, want := range map[string]string{
		"a": "a", "a,b": "a", "n[1-3]": "n1", "n[01,05]": "n01", "n[7]": "n7", "n[1-2]-ib,x": "n1-ib", "a,n[1-2]": "a", "": "",
	} {
		if got := FirstHost(list); got != want {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
	}
}

// TestFindHosts reads the number of hosts, this host's number and the address from the
// variables of each launcher.
func TestFindHosts(t *testing.T) {
	for text, want := range map[string]Hosts{
		"": {1, 0, ""},
		"TUTTI_NODES=3 TUTTI_NODE=2 TUTTI_ADDR=h:1":                                                                    {3, 2, "h:1"},
		"TUTTI_NODES=3 JOB_COMPLETION_INDEX=1 TUTTI_ADDR=h:1":                                                          {3, 1, "h:1"},
		"PET_NNODES=4 PET_NODE_RANK=3 MASTER_ADDR=m MASTER_PORT=23456":                                                 {4, 3, "m:23456"},
		"SLURM_STEP_ID=0 SLURM_NNODES=2 SLURM_NODEID=1 SLURM_JOB_ID=5 SLURM_JOB_NODELIST=n[1-2] SLURM_JOB_NUM_NODES=2": {2, 1, "n1:20005"},
		"SLURM_NNODES=2 SLURM_NODEID=1":                                                                                {1, 0, ""},
	} {
		env := make(map[string]string)
		for _, f := range strings.Fields(text) {
			k, v, _ := strings.Cut(f, "=")
			env[k] = v
		}
		if got, wrong := FindHosts(func(k string) string { return env[k] }); got != want || wrong != "" {
			t.Errorf("%s: %+v, %q; want %+v", text, got, wrong, want)
		}
	}
	for name, env := range map[string]map[string]string{
		"TUTTI_NODES": {"TUTTI_NODES": "x", "TUTTI_NODE": "1"},
		"TUTTI_NODE":  {"TUTTI_NODES": "2", "TUTTI_NODE": "x"},
		"TUTTI_ADDR":  {"TUTTI_NODES": "2", "TUTTI_ADDR": "x"},
	} {
		if _, wrong := FindHosts(func(k string) string { return env[k] }); !strings.HasPrefix(wrong, name+` is "x", not`) {
			t.Errorf("%v: %q", env, wrong)
		}
	}
	alone := func(k string) string { return map[string]string{"TUTTI_NODE": "1"}[k] }
	if _, wrong := FindHosts(alone); wrong != "TUTTI_NODE is set but TUTTI_NODES is not" {
		t.Error(wrong)
	}
}

// TestLate checks which variables give a late process the address of the job's store.
func TestLate(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "",
		"TUTTI_STORE=h:1":              "h:1 false",
		"MASTER_ADDR=h MASTER_PORT=2":  "",
		"TUTTI_RANK=1 TUTTI_STORE=h:1": "h:1 false",
		"MASTER_ADDR=h MASTER_PORT=2 TORCHELASTIC_USE_AGENT_STORE=True": "h:2 true",
	} {
		env := make(map[string]string)
		for _, f := range strings.Fields(text) {
			k, v, _ := strings.Cut(f, "=")
			env[k] = v
		}
		got := ""
		p, wrong := Late(func(k string) string { return env[k] })
		if p != nil {
			got = fmt.Sprint(p.Store, " ", p.Plain)
		}
		if (p == nil) != (wrong != "") {
			t.Errorf("%s: %+v, %q", text, p, wrong)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestStayLocal checks that ranks of one host use the loopback interface, whatever the
// host's name is.
func TestStayLocal(t *testing.T) {
	p := &Place{Addr: "h:29500", Local: true}
	if p.StayLocal(); p.Addr != "127.0.0.1:29500" {
		t.Error(p.Addr)
	}
	for _, p := range []*Place{{Addr: "h:1"}, {Addr: "[::1]:1", Local: true}, {Local: true}} {
		before := p.Addr
		if p.StayLocal(); p.Addr != before {
			t.Error(before, p.Addr)
		}
	}
	for want, p := range map[string]*Place{"127.0.0.1:0": {Store: "h:1", Local: true}, "h:1": {Store: "h:1"}, "": {Local: true}} {
		if p.Near() != want {
			t.Errorf("%+v: %s, want %s", p, p.Near(), want)
		}
	}
}

// TestCheckSecret checks the rules for a secret, and that the text says how to create
// one.
func TestCheckSecret(t *testing.T) {
	for secret, says := range map[string]string{
		"": "there is no secret; openssl rand", "123456789012345": "the secret has 15 bytes, and must have 16 or more, at random; openssl rand",
		"1234567890123456": "",
	} {
		if got := CheckSecret(secret); !strings.HasPrefix(got, says) || (got == "") != (says == "") {
			t.Errorf("%q: %s", secret, got)
		}
	}
}
