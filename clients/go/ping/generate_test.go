package ping

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// protoc writes its version into the code, and nothing else that depends on it.
var protocVersion = regexp.MustCompile(`(?m)^// [-\t ]+protoc +v.*$`)

func TestGeneratedCodeIsCurrent(t *testing.T) {
	if _, err := exec.LookPath("protoc"); err != nil {
		t.Skip("not run: protoc, which generates the code, is not installed (package protobuf-compiler)")
	}
	folder := t.TempDir()
	if output, err := exec.Command("sh", "generate.sh", folder).CombinedOutput(); err != nil {
		t.Fatalf("cannot generate: %v\n%s", err, output)
	}
	for _, name := range []string{"ping.pb.go", "ping_grpc.pb.go"} {
		committed, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		generated, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(protocVersion.ReplaceAll(committed, nil)) != string(protocVersion.ReplaceAll(generated, nil)) {
			t.Errorf("%s is not what ping.proto gives: run `go generate ./ping`", name)
		}
	}
}
