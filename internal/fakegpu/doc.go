// Package fakegpu builds fake versions of libcuda and libnccl, so that tests of GPU code can
// run without a GPU.
//
// The libraries have the real names and signatures, and check every argument. Device memory is
// host memory that the caller cannot access. Streams run on threads of their own, and
// collectives move real bytes between threads and between processes. Tests can inject
// faults. Performance on the fake libraries says nothing about a GPU.
package fakegpu
