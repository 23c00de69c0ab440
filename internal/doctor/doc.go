// Package doctor is what `tutti doctor` does: it looks at a machine as the library
// would, and says of each thing whether it is well and what to do about it.
//
// [Look] gathers [Facts], [Judge] makes [Line]s of them. What may crash, or hang,
// or be killed for trying, is done by other processes: the [Probes].
package doctor
