// Package platform makes builds for systems that tutti does not run on fail with a sentence.
//
// It is empty where tutti builds. Packages that do not build everywhere import it, so
// that the compiler stops here, before it lists what they lack.
package platform
