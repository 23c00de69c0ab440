package segment

import "os"

func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(text), err
}

func networkNamespace() (string, error) { return os.Readlink("/proc/self/ns/net") }
