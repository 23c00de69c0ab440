// Package cudasys is the CUDA driver's interface as raw calls: handles are
// numbers, and nothing is checked but the driver's results. Package cuda makes
// it safe.
//
// Calls neither allocate nor keep Go memory. Those that use the current context
// say nothing about it: the caller locks the thread and makes a context current.
package cudasys
