package torch

import "log/slog"

// LoadedLibrary returns the path and the version of the libnccl that Join loads.
func LoadedLibrary() (path, version string, err error) {
	c := Config{Logger: slog.Default()}
	lib, err := c.library()
	if err != nil {
		return "", "", err
	}
	return lib.Path(), lib.Version().String(), nil
}
