// The controllers of Karpenter itself, on the nodes of a simulation. aws.go stands in for EC2.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/go-logr/zapr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
	"sigs.k8s.io/karpenter/pkg/operator/options"
)

// The fields by which Karpenter's controllers look objects up.
var indexes = []struct {
	kind  client.Object
	field string
	value func(client.Object) string
}{
	{&corev1.Pod{}, "spec.nodeName", func(o client.Object) string { return o.(*corev1.Pod).Spec.NodeName }},
	{&corev1.Node{}, "spec.providerID", func(o client.Object) string { return o.(*corev1.Node).Spec.ProviderID }},
	{&storagev1.VolumeAttachment{}, "spec.nodeName", func(o client.Object) string { return o.(*storagev1.VolumeAttachment).Spec.NodeName }},
	{&v1.NodeClaim{}, "status.providerID", func(o client.Object) string { return o.(*v1.NodeClaim).Status.ProviderID }},
	{&v1.NodeClaim{}, "spec.nodeClassRef.group", func(o client.Object) string { return o.(*v1.NodeClaim).Spec.NodeClassRef.Group }},
	{&v1.NodeClaim{}, "spec.nodeClassRef.kind", func(o client.Object) string { return o.(*v1.NodeClaim).Spec.NodeClassRef.Kind }},
	{&v1.NodeClaim{}, "spec.nodeClassRef.name", func(o client.Object) string { return o.(*v1.NodeClaim).Spec.NodeClassRef.Name }},
	{&v1.NodePool{}, "spec.template.spec.nodeClassRef.group", func(o client.Object) string { return classOf(o).Group }},
	{&v1.NodePool{}, "spec.template.spec.nodeClassRef.kind", func(o client.Object) string { return classOf(o).Kind }},
	{&v1.NodePool{}, "spec.template.spec.nodeClassRef.name", func(o client.Object) string { return classOf(o).Name }},
}

func classOf(pool client.Object) *v1.NodeClassReference {
	return pool.(*v1.NodePool).Spec.Template.Spec.NodeClassRef
}

// The first two arguments are the files of the machines and of the connection, all others are Karpenter's own flags.
func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println(operator.Version)
		return
	}
	file, kubeconfig := os.Args[1], os.Args[2]
	os.Args = append(os.Args[:1], os.Args[3:]...)
	ctx := injection.WithOptionsOrDie(context.Background(), options.Injectables...)
	logger := zapr.NewLogger(logging.NewLogger(ctx, "controller"))
	log.SetLogger(logger)
	ctx = log.IntoContext(ctx, logger)

	config := must(clientcmd.BuildConfigFromFlags("", kubeconfig))
	config.QPS, config.Burst = 200, 300
	manager := must(ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme.Scheme,
		Metrics:                server.Options{BindAddress: "0"}, // no port: nobody reads it
		HealthProbeBindAddress: "0",
		BaseContext:            func() context.Context { return ctx },
	}))
	for _, one := range indexes {
		must(0, manager.GetFieldIndexer().IndexField(ctx, one.kind, one.field, func(o client.Object) []string {
			return []string{one.value(o)}
		}))
	}
	types := nodeoverlay.NewInstanceTypeStore()
	var claims v1.NodeClaimList
	must(0, must(client.New(config, client.Options{Scheme: scheme.Scheme})).List(ctx, &claims))
	aws := newAWS(must(os.ReadFile(file)), manager.GetClient(), claims.Items)
	provider := overlay.Decorate(aws, manager.GetClient(), types)
	recorder := events.NewRecorder(manager.GetEventRecorderFor("karpenter"))
	time := clock.RealClock{}
	cluster := state.NewCluster(time, manager.GetClient(), provider)
	for _, one := range controllers.NewControllers(
		ctx, manager, time, manager.GetClient(), recorder, provider, aws, cluster, types,
	) {
		must(0, one.Register(ctx, manager))
	}
	must(0, manager.Start(ctrl.SetupSignalHandler()))
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}
