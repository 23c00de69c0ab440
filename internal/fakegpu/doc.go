// Package standin builds libraries that stand in for libcuda and libnccl where
// there is no GPU, so that tests of what calls them can run anywhere.
//
// They have the real names and signatures, check every argument, keep device
// memory in host memory that the caller cannot touch, work streams off on
// threads of their own, and move real bytes between threads and between
// processes. They can be told to fail. What runs on them says nothing about
// a GPU.
package fakegpu
