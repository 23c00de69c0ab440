// Package cudasys makes raw calls into the CUDA driver. Handles are numbers. The only
// check is that of the driver's results. Package cuda is the safe layer above.
//
// Calls neither allocate nor keep Go memory. A call that needs a current context does not
// set it: the caller locks the goroutine to its thread and makes a context current.
package cudasys
