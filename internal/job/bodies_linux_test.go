package job

// linuxBodies are bodies that read Linux's /proc.
var linuxBodies = map[string]body{
	"vanish":     hostLossRank,
	"besieged":   floodRank,
	"steady":     steady,
	"endless":    endless,
	"parting":    leaveRank,
	"abandon":    abandon,
	"orphaned":   formWithoutFirst,
	"crowd":      oversubscribe,
	"unreadable": unreadable,
}
