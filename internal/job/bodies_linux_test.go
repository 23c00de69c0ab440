package job

// linuxBodies are bodies that look at what the kernel knows of them.
var linuxBodies = map[string]body{
	"vanish":     vanish,
	"besieged":   besieged,
	"steady":     steady,
	"endless":    endless,
	"parting":    parting,
	"abandon":    abandon,
	"orphaned":   orphaned,
	"crowd":      crowd,
	"unreadable": unreadable,
}
