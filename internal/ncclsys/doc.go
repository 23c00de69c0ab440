// Package ncclsys makes raw calls into NCCL. Handles are numbers. The only check is that of
// the library's results. Package nccl is the safe layer above.
//
// A Library can be any NCCL version from 2.14 on. Load looks up the functions. A call of a
// missing function returns an error that names the version that has it.
package ncclsys
