package tcp

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// NewJobCertificate makes a certificate and its key, in PEM, for one job: all
// its ranks hold both, and trust nothing else.
func NewJobCertificate(valid time.Duration) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("tcp: job certificate: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, fmt.Errorf("tcp: job certificate: %w", err)
	}
	now := time.Now()
	return signed(private, serial, now.Add(-time.Hour), now.Add(valid)) // clocks differ
}

// DeriveJobCertificate makes them of nothing but the job's secret, so that every
// host has the same ones without their being sent: the key is derived, the rest
// is fixed, and Ed25519 signs the same way each time. Whoever connects sees the
// certificate and can try secrets on it: a secret must be long and random.
func DeriveJobCertificate(secret string) (cert, key []byte, err error) {
	seed, err := hkdf.Key(sha256.New, []byte(secret), nil, "tutti job certificate 1", ed25519.SeedSize)
	if err != nil {
		return nil, nil, fmt.Errorf("tcp: job certificate: %w", err)
	}
	// It lives as long as the secret. Dates would differ between hosts.
	return signed(ed25519.NewKeyFromSeed(seed), big.NewInt(1),
		time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))
}

// signed makes a certificate that a key signs for itself.
func signed(private crypto.Signer, serial *big.Int, from, until time.Time) (cert, key []byte, err error) {
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: serverName},
		DNSNames:              []string{serverName},
		NotBefore:             from,
		NotAfter:              until,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, fmt.Errorf("tcp: job certificate: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("tcp: job certificate: %w", err)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	return cert, key, nil
}

// NewJobTLS returns the configuration, for Options.TLS and other connections of
// the job, of a rank that holds a job certificate: TLS 1.3, and both sides show it.
func NewJobTLS(cert, key []byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("tcp: job certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(cert) {
		return nil, errors.New("tcp: job certificate: not a certificate")
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair},
		RootCAs:      pool,
		ClientCAs:    pool,
		ServerName:   serverName,
		MinVersion:   tls.VersionTLS13,
		ClientAuth:   tls.RequireAndVerifyClientCert,

		SessionTicketsDisabled: true,
	}, nil
}
