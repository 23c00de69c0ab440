package bench

import (
	"errors"
	"reflect"

	"github.com/tutti-go/tutti"
)

// stage makes a Comm take device memory by way of the host's. It looks the setting
// up by its name, so that a library without it is an error here.
func stage(cfg *tutti.Config) error {
	f := reflect.ValueOf(cfg).Elem().FieldByName("HostStaging")
	if !f.IsValid() || f.Kind() != reflect.Bool {
		return errors.New("engine staged needs Config.HostStaging, which this version of tutti does not have")
	}
	f.SetBool(true)
	return nil
}
