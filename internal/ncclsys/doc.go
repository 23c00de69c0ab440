// Package ncclsys is NCCL's interface as raw calls: handles are numbers, and
// nothing is checked but the library's results. Package nccl makes it safe.
//
// One Library serves every version from 2.14 on: functions are looked up when
// it is loaded, and calling one that is not there says which version has it.
package ncclsys
