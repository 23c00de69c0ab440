// Package jobtls makes the TLS certificate of a job and the TLS configuration of its ranks. All
// processes of a job hold the same self-signed certificate with its key, and trust no other. The
// TCP transport, the control channel, the store and the launcher use it.
package jobtls

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

// ServerName is the DNS name in every job certificate.
const ServerName = "tutti"

// NewCertificate makes a random certificate and its private key, both in PEM.
func NewCertificate(valid time.Duration) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("job certificate: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, fmt.Errorf("job certificate: %w", err)
	}
	now := time.Now()
	return selfSigned(private, serial, now.Add(-time.Hour), now.Add(valid)) // an hour of clock difference is tolerated
}

// DeriveCertificate computes the certificate and its private key from the job's secret. Every
// host computes the same bytes, so neither is sent over the network: the key is derived by HKDF,
// all other fields are constants, and Ed25519 signatures are deterministic. A client that connects
// sees the certificate and can test guesses of the secret against it. The secret must therefore
// be long and random.
func DeriveCertificate(secret string) (cert, key []byte, err error) {
	seed, err := hkdf.Key(sha256.New, []byte(secret), nil, "tutti job certificate 1", ed25519.SeedSize)
	if err != nil {
		return nil, nil, fmt.Errorf("job certificate: %w", err)
	}
	// The dates are constants because clocks differ between hosts.
	return selfSigned(ed25519.NewKeyFromSeed(seed), big.NewInt(1),
		time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))
}

// selfSigned makes a certificate for both servers and clients, signed by its own key, and returns both in
// PEM.
func selfSigned(private crypto.Signer, serial *big.Int, from, until time.Time) (cert, key []byte, err error) {
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: ServerName},
		DNSNames:              []string{ServerName},
		NotBefore:             from,
		NotAfter:              until,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, fmt.Errorf("job certificate: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("job certificate: %w", err)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	return cert, key, nil
}

// Config returns the TLS configuration of a process that holds a job certificate. It requires
// TLS 1.3 and the job certificate on both sides.
func Config(cert, key []byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("job certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(cert) {
		return nil, errors.New("job certificate: not a certificate")
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair},
		RootCAs:      pool,
		ClientCAs:    pool,
		ServerName:   ServerName,
		MinVersion:   tls.VersionTLS13,
		ClientAuth:   tls.RequireAndVerifyClientCert,

		SessionTicketsDisabled: true,
	}, nil
}

// Binding returns a value that identifies the TLS session of c. It is equal on both sides and
// differs in every other session. Purpose separates the values of different protocols. The
// handshake must be complete.
func Binding(c *tls.Conn, purpose string) ([]byte, error) {
	state := c.ConnectionState()
	return state.ExportKeyingMaterial("EXPORTER-tutti-"+purpose, nil, 32)
}
