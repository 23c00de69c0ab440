package job

// linuxBodies are bodies that look at what the kernel knows of them.
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
