// Package prefetch asks the processor for cache lines before they are needed.
package prefetch
