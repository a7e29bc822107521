// Command spiffe-csi plays the SPIFFE CSI driver on the node of a test: a volume of csi.spiffe.io is one folder of the node,
// read-only. It speaks with the kubelet as any driver does, and registers itself.
//
//	spiffe-csi NODE FOLDER SOCKET REGISTRATION
//
// FOLDER is what Pods get, SOCKET where the driver listens, REGISTRATION a socket in the kubelet's plugins_registry.
package main

import (
	"context"
	"log"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const name = "csi.spiffe.io"

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: spiffe-csi NODE FOLDER SOCKET REGISTRATION")
	}
	node, folder, socket, registry := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	volumes := &driver{node: node, folder: folder}
	serve(socket, func(server *grpc.Server) {
		csi.RegisterIdentityServer(server, volumes)
		csi.RegisterNodeServer(server, volumes)
	})
	serve(registry, func(server *grpc.Server) {
		registration.RegisterRegistrationServer(server, &plugin{socket: socket})
	})
	select {}
}

func serve(socket string, register func(*grpc.Server)) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	go func() { log.Fatal(server.Serve(listener)) }()
}

type plugin struct {
	registration.UnimplementedRegistrationServer
	socket string
}

func (p *plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: name, Endpoint: p.socket, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (p *plugin) NotifyRegistrationStatus(
	_ context.Context, told *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	log.Printf("registered: %v %s", told.PluginRegistered, told.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	node, folder string
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: name, VendorVersion: "1"}, nil
}

func (d *driver) GetPluginCapabilities(
	context.Context, *csi.GetPluginCapabilitiesRequest,
) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node}, nil
}

func (d *driver) NodeGetCapabilities(
	context.Context, *csi.NodeGetCapabilitiesRequest,
) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

func (d *driver) NodePublishVolume(
	_ context.Context, asked *csi.NodePublishVolumeRequest,
) (*csi.NodePublishVolumeResponse, error) {
	if !asked.Readonly || asked.VolumeContext["csi.storage.k8s.io/ephemeral"] != "true" {
		return nil, status.Error(codes.InvalidArgument, "a volume of this driver is read-only and stands in the Pod itself")
	}
	// A call that is made again finds what the first one did.
	if isMount(asked.TargetPath) {
		return &csi.NodePublishVolumeResponse{}, nil
	}
	if err := mount(d.folder, asked.TargetPath); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (d *driver) NodeUnpublishVolume(
	_ context.Context, asked *csi.NodeUnpublishVolumeRequest,
) (*csi.NodeUnpublishVolumeResponse, error) {
	if isMount(asked.TargetPath) {
		if err := syscall.Unmount(asked.TargetPath, 0); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	if err := os.Remove(asked.TargetPath); err != nil && !os.IsNotExist(err) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func mount(folder, target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount(folder, target, "", syscall.MS_BIND, ""); err != nil {
		return err
	}
	return syscall.Mount("", target, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
}

// isMount says whether something is mounted there: only the driver makes mounts in these folders, and only read-only ones.
func isMount(target string) bool {
	var about syscall.Statfs_t
	const readOnly = 1
	return syscall.Statfs(target, &about) == nil && about.Flags&readOnly != 0
}
