package kernel

//go:noescape
func sumFloat16NEON(dst, a, b *byte, n int)

//go:noescape
func prodFloat16NEON(dst, a, b *byte, n int)

//go:noescape
func minFloat16NEON(dst, a, b *byte, n int)

//go:noescape
func maxFloat16NEON(dst, a, b *byte, n int)

//go:noescape
func scaleFloat16NEON(dst, a *byte, n int, x float64)

//go:noescape
func scaleAddFloat16NEON(dst, a, b *byte, n int, x float64)

//go:noescape
func sumBFloat16NEON(dst, a, b *byte, n int)

//go:noescape
func prodBFloat16NEON(dst, a, b *byte, n int)

//go:noescape
func minBFloat16NEON(dst, a, b *byte, n int)

//go:noescape
func maxBFloat16NEON(dst, a, b *byte, n int)

//go:noescape
func scaleBFloat16NEON(dst, a *byte, n int, x float64)

//go:noescape
func scaleAddBFloat16NEON(dst, a, b *byte, n int, x float64)

//go:noescape
func sumFloat32NEON(dst, a, b *byte, n int)

//go:noescape
func prodFloat32NEON(dst, a, b *byte, n int)

//go:noescape
func minFloat32NEON(dst, a, b *byte, n int)

//go:noescape
func maxFloat32NEON(dst, a, b *byte, n int)

//go:noescape
func scaleFloat32NEON(dst, a *byte, n int, x float64)

//go:noescape
func scaleAddFloat32NEON(dst, a, b *byte, n int, x float64)

//go:noescape
func sumFloat64NEON(dst, a, b *byte, n int)

//go:noescape
func prodFloat64NEON(dst, a, b *byte, n int)

//go:noescape
func minFloat64NEON(dst, a, b *byte, n int)

//go:noescape
func maxFloat64NEON(dst, a, b *byte, n int)

//go:noescape
func scaleFloat64NEON(dst, a *byte, n int, x float64)

//go:noescape
func scaleAddFloat64NEON(dst, a, b *byte, n int, x float64)
