package engine

// NoDevice is the Device of a Description without a device.
const NoDevice = -1

// A Description says how an engine moves data. Its names are for people; see tutti.Info.
type Description struct {
	Engine     string
	Transport  string
	DevicePath string // "": no device
	Device     int    // ordinal, or NoDevice
}
