package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tutti-go/tutti/internal/bench"
)

// shells are the shells with a completion script.
var shells = []string{"bash", "zsh", "fish"}

// The scripts call `tutti complete` for candidates. If there are none, the shell
// completes file names.
var scripts = map[string]string{
	"bash": `_tutti() {
	local IFS=$'\n'
	COMPREPLY=($(tutti complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _tutti tutti
`,
	"zsh": `#compdef tutti
_tutti() {
	local -a found
	found=(${(f)"$(tutti complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
	if (( $#found )); then compadd -- $found; else _files; fi
}
if [ "$funcstack[1]" = "_tutti" ]; then _tutti "$@"; else compdef _tutti tutti; fi
`,
	"fish": `function __tutti_complete
	set -l words (commandline -opc) (commandline -ct)
	tutti complete $words[2..-1] 2>/dev/null; or __fish_complete_path (commandline -ct)
end
complete -c tutti -f -a '(__tutti_complete)'
`,
}

const completionHelp = `Usage: tutti completion bash|zsh|fish

Prints a script that completes tutti's commands, flags and their values.

  source <(tutti completion bash)                                in ~/.bashrc
  tutti completion zsh >"${fpath[1]}/_tutti"                     once
  tutti completion fish >~/.config/fish/completions/tutti.fish   once

Exit codes: 0, or 2 for an unknown shell.
`

// runCompletion is the command tutti completion.
func runCompletion(_ app, args []string) int {
	if len(args) == 1 && (args[0] == "-h" || args[0] == "--help") {
		fmt.Print(completionHelp)
		return 0
	}
	if len(args) != 1 || scripts[args[0]] == "" {
		fmt.Fprintln(os.Stderr, "tutti completion: name a shell: bash, zsh or fish")
		return 2
	}
	fmt.Print(scripts[args[0]])
	return 0
}

// runComplete is the command that the scripts call. It completes the last word.
func runComplete(_ app, args []string) int {
	found := complete(args)
	for _, w := range found {
		fmt.Println(w)
	}
	if len(found) == 0 {
		return 1
	}
	return 0
}

// complete returns the candidates for the last word.
func complete(words []string) (found []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	var all []string
	if len(words) == 1 {
		all = []string{"help"}
	}
	for _, c := range commands() {
		switch {
		case c.summary == "":
		case len(words) == 1 || len(words) == 2 && words[0] == "help":
			all = append(all, c.name)
		case c.name == words[0]:
			all = c.candidates(words[1:])
		}
	}
	// In a list, the word after the last comma is completed.
	before := ""
	if i := strings.LastIndexByte(last, ','); i >= 0 {
		before = last[:i+1]
	}
	for _, w := range all {
		if w = before + w; strings.HasPrefix(w, last) {
			found = append(found, w)
		}
	}
	slices.Sort(found)
	return found
}

// candidates returns the possible last words of a command line.
func (c *command) candidates(words []string) (all []string) {
	if c.flags == nil {
		if len(words) == 1 {
			return c.args
		}
		return nil
	}
	if slices.Contains(words[:len(words)-1], "--") {
		return nil
	}
	f := c.flags()
	if len(words) > 1 {
		name := strings.TrimLeft(words[len(words)-2], "-")
		if g := f.Lookup(name); g != nil && strings.HasPrefix(words[len(words)-2], "-") && !isBool(g) {
			return flagValues(name)
		}
	}
	f.VisitAll(func(g *flag.Flag) {
		dashes := "--"
		if len(g.Name) == 1 {
			dashes = "-"
		}
		all = append(all, dashes+g.Name)
	})
	return all
}

func isBool(g *flag.Flag) bool {
	b, ok := g.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// flagValues returns the values of a flag; nil if they cannot be listed.
func flagValues(name string) []string {
	switch name {
	case "engine":
		return bench.Engines
	case "op":
		return append(bench.OpNames(), "all")
	case "dtype":
		return append(bench.DTypeNames(), "all")
	case "reduce":
		return append(bench.ReduceNames(), "all")
	case "gpus":
		return []string{"local", "visible"}
	case "color":
		return []string{"auto", "always", "never"}
	}
	return nil
}
