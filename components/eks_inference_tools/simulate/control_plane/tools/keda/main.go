// KEDA's operator and its metrics server, in one program: the server asks the operator by a call, not by gRPC.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	kedav1alpha1 "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	keda "github.com/kedacore/keda/v2/controllers/keda"
	"github.com/kedacore/keda/v2/pkg/eventemitter"
	"github.com/kedacore/keda/v2/pkg/k8s"
	"github.com/kedacore/keda/v2/pkg/metricscollector"
	"github.com/kedacore/keda/v2/pkg/scalers/authentication"
	"github.com/kedacore/keda/v2/pkg/scaling"
	"github.com/kedacore/keda/v2/version"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/metrics/pkg/apis/external_metrics"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	adapter "sigs.k8s.io/custom-metrics-apiserver/pkg/cmd"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider/defaults"
)

// What KEDA's operator waits for the answer of a source of metrics (cmd/operator, KEDA_HTTP_DEFAULT_TIMEOUT).
const answer = 3 * time.Second

type metrics struct {
	defaults.DefaultExternalMetricsProvider
	handler scaling.ScaleHandler
}

func (m *metrics) GetExternalMetric(
	ctx context.Context, namespace string, selector labels.Selector, info provider.ExternalMetricInfo,
) (*external_metrics.ExternalMetricValueList, error) {
	asked, err := labels.ConvertSelectorToLabelsMap(selector.String())
	if err != nil {
		return nil, err
	}
	return m.handler.GetScaledObjectMetrics(ctx, asked.Get(kedav1alpha1.ScaledObjectOwnerAnnotation), namespace, info.Metric)
}

// The first two arguments are the file of the connection and the URL of Prometheus, which answers for each address that a trigger
// names. All others are flags of the metrics server.
func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println(version.Version)
		return
	}
	kubeconfig := os.Args[1]
	must(0, os.Setenv("HTTP_PROXY", os.Args[2]))
	must(0, os.Setenv("KEDA_CLUSTER_OBJECT_NAMESPACE", "keda"))
	ctrl.SetLogger(zap.New())
	ctx := ctrl.SetupSignalHandler()
	must(0, kedav1alpha1.AddToScheme(scheme.Scheme))
	config := must(clientcmd.BuildConfigFromFlags("", kubeconfig))
	config.QPS, config.Burst = 200, 300
	metricscollector.NewMetricsCollectors(false, false)
	manager := must(ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme.Scheme,
		Metrics:                server.Options{BindAddress: "0"}, // no port: nobody reads it
		HealthProbeBindAddress: "0",
	}))
	client := must(kubernetes.NewForConfig(config))
	factory := informers.NewSharedInformerFactoryWithOptions(client, time.Hour, informers.WithNamespace("keda"))
	secrets := factory.Core().V1().Secrets()
	access := &authentication.AuthClientSet{CoreV1Interface: client.CoreV1(), SecretLister: secrets.Lister()}
	secrets.Informer()
	scales, _, err := k8s.InitScaleClient(manager)
	must(0, err)
	recorder := manager.GetEventRecorder("keda-operator")
	handler := scaling.NewScaleHandler(manager.GetClient(), scales, manager.GetScheme(), answer, recorder, access)
	must(0, (&keda.ScaledObjectReconciler{
		Client:       manager.GetClient(),
		Scheme:       manager.GetScheme(),
		ScaleClient:  scales,
		ScaleHandler: handler,
		EventEmitter: eventemitter.NewEventEmitter(manager.GetClient(), recorder, "", access),
	}).SetupWithManager(manager, controller.Options{MaxConcurrentReconciles: 5}))
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	go func() { must(0, manager.Start(ctx)) }()

	serving := &adapter.AdapterBase{Name: "keda-adapter"}
	must(0, serving.Flags().Parse(append(os.Args[3:], "--lister-kubeconfig="+kubeconfig)))
	serving.WithExternalMetrics(&metrics{handler: handler})
	must(0, serving.Run(ctx))
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}
