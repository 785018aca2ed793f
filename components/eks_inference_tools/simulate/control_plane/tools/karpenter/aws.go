package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"
)

// lostLabel is on a node whose instance is gone ("node") or whose zone is ("zone").
const lostLabel = "eks-inference/lost"

// machine is an instance type in one pool, as stand_ins/karpenter.py writes it.
type machine struct {
	Name        string
	Labels      map[string][]string // all values that a label may have
	Capacity    corev1.ResourceList // with all devices
	Allocatable corev1.ResourceList
	Registers   corev1.ResourceList // what a kubelet reports before any device plugin runs
	Annotations map[string]string
	Offerings   []struct {
		Labels map[string]string
		Price  float64
	}
}

// classHash is on a claim: the fingerprint of the EC2NodeClass that its instance was started with.
const classHash = "karpenter.k8s.aws/ec2nodeclass-hash"

// aws keeps instances, and has nodes of kwok made for them.
type aws struct {
	client    client.Client
	machines  map[string][]machine // by NodePool
	version   string               // of the cluster
	delay     time.Duration
	mutex     sync.Mutex
	instances map[string]*v1.NodeClaim // by provider ID
}

func newAWS(file []byte, client client.Client, claims []v1.NodeClaim) *aws {
	var given struct {
		Machines            map[string][]machine
		RegistrationSeconds float64
		Version             string
	}
	must(0, json.Unmarshal(file, &given))
	for _, machines := range given.Machines {
		for _, one := range machines {
			for key := range one.Labels {
				v1.WellKnownLabels.Insert(key)
			}
			for _, offering := range one.Offerings {
				for key := range offering.Labels {
					v1.WellKnownLabels.Insert(key)
				}
			}
		}
	}
	v1.RestrictedLabelDomains.Insert("karpenter.k8s.aws")
	delay := time.Duration(given.RegistrationSeconds * float64(time.Second))
	instances := map[string]*v1.NodeClaim{} // those that an earlier process started go on
	for _, one := range claims {
		if one.Status.ProviderID != "" {
			instances[one.Status.ProviderID] = &one
		}
	}
	return &aws{client: client, machines: given.Machines, version: given.Version, delay: delay, instances: instances}
}

func (a *aws) Name() string { return "aws" }

func (a *aws) GetSupportedNodeClasses() []status.Object { return []status.Object{&EC2NodeClass{}} }

func (a *aws) RepairPolicies() []cloudprovider.RepairPolicy { return nil }

func (a *aws) GetInstanceTypes(ctx context.Context, pool *v1.NodePool) ([]*cloudprovider.InstanceType, error) {
	lost, err := a.lostZones(ctx)
	if err != nil {
		return nil, err
	}
	var found []*cloudprovider.InstanceType
	for _, one := range a.machines[pool.Name] {
		found = append(found, one.instanceType(lost))
	}
	return found, nil
}

func (a *aws) lostZones(ctx context.Context) (map[string]bool, error) {
	var nodes corev1.NodeList
	if err := a.client.List(ctx, &nodes, client.MatchingLabels{lostLabel: "zone"}); err != nil {
		return nil, err
	}
	lost := map[string]bool{}
	for _, node := range nodes.Items {
		lost[node.Labels[corev1.LabelTopologyZone]] = true
	}
	return lost, nil
}

func (m *machine) instanceType(lost map[string]bool) *cloudprovider.InstanceType {
	requirements := scheduling.NewRequirements()
	for key := range v1.WellKnownLabels {
		if key != v1.NodePoolLabelKey {
			requirements.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpDoesNotExist))
		}
	}
	values := map[string][]string{}
	for key, some := range m.Labels {
		values[key] = some
	}
	var offerings cloudprovider.Offerings
	for _, one := range m.Offerings {
		for key, value := range one.Labels {
			values[key] = append(values[key], value)
		}
		offerings = append(offerings, &cloudprovider.Offering{
			Requirements: scheduling.NewLabelRequirements(one.Labels),
			Price:        one.Price,
			Available:    !lost[one.Labels[corev1.LabelTopologyZone]],
		})
	}
	for key, some := range values {
		requirements[key] = scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, some...)
	}
	overhead := resources.Subtract(m.Capacity, m.Allocatable)
	for name, amount := range m.Capacity { // Karpenter takes huge pages off the memory; here that is done
		if len(name) > 10 && name[:10] == "hugepages-" {
			memory := overhead[corev1.ResourceMemory]
			memory.Sub(amount)
			overhead[corev1.ResourceMemory] = memory
		}
	}
	return &cloudprovider.InstanceType{
		Name:         m.Name,
		Requirements: requirements,
		Offerings:    offerings,
		Capacity:     m.Capacity,
		Overhead:     &cloudprovider.InstanceTypeOverhead{KubeReserved: overhead},
	}
}

// Create starts the cheapest instance that the claim allows.
func (a *aws) Create(ctx context.Context, claim *v1.NodeClaim) (*v1.NodeClaim, error) {
	class, err := a.fingerprint(ctx, claim.Spec.NodeClassRef.Name)
	if err != nil {
		return nil, cloudprovider.NewInsufficientCapacityError(err)
	}
	lost, err := a.lostZones(ctx)
	if err != nil {
		return nil, err
	}
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...)
	var best *cloudprovider.Offering
	var chosen machine
	for _, one := range a.machines[claim.Labels[v1.NodePoolLabelKey]] {
		it := one.instanceType(lost)
		if !wanted.Get(corev1.LabelInstanceTypeStable).Has(one.Name) || !resources.Fits(claim.Spec.Resources.Requests, it.Allocatable()) {
			continue
		}
		for _, offering := range it.Offerings.Available().Compatible(wanted) {
			if best == nil || offering.Price < best.Price {
				best, chosen = offering, one
			}
		}
	}
	if best == nil {
		return nil, cloudprovider.NewInsufficientCapacityError(errors.New("EC2 has none of these instance types in these zones"))
	}
	labels := map[string]string{corev1.LabelHostname: claim.Name}
	for key, some := range chosen.Labels {
		if len(some) == 1 {
			labels[key] = some[0]
		}
	}
	for _, requirement := range best.Requirements {
		labels[requirement.Key] = requirement.Any()
	}
	for _, requirement := range claim.Spec.Requirements {
		if _, set := labels[requirement.Key]; !set && len(requirement.Values) > 0 && requirement.Operator == corev1.NodeSelectorOpIn {
			labels[requirement.Key] = requirement.Values[0]
		}
	}
	for key, value := range claim.Labels {
		labels[key] = value
	}
	started := claim.DeepCopy()
	started.Labels = labels
	metav1.SetMetaDataAnnotation(&started.ObjectMeta, classHash, class)
	started.Status.ProviderID = fmt.Sprintf("aws:///%s/i-%017x", labels[corev1.LabelTopologyZone], hashed(claim.Name))
	started.Status.Capacity, started.Status.Allocatable = chosen.Capacity, chosen.Allocatable
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.instances[started.Status.ProviderID] = started
	time.AfterFunc(a.delay, func() { a.register(ctx, started, chosen) })
	return started, nil
}

// register does what the kubelet of a new instance does.
func (a *aws) register(ctx context.Context, started *v1.NodeClaim, chosen machine) {
	if _, err := a.Get(ctx, started.Status.ProviderID); err != nil {
		return // it was ended before
	}
	allocatable := corev1.ResourceList{}
	for name := range chosen.Registers {
		allocatable[name] = chosen.Allocatable[name]
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: started.Name, Labels: started.Labels, Annotations: chosen.Annotations},
		Spec:       corev1.NodeSpec{ProviderID: started.Status.ProviderID, Taints: []corev1.Taint{v1.UnregisteredNoExecuteTaint}},
		Status:     corev1.NodeStatus{Capacity: chosen.Registers, Allocatable: allocatable},
	}
	if err := a.client.Create(context.WithoutCancel(ctx), node); err != nil {
		log.FromContext(ctx).Error(err, "the node of an instance did not register")
	}
}

func (a *aws) Delete(_ context.Context, claim *v1.NodeClaim) error {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if _, there := a.instances[claim.Status.ProviderID]; !there {
		return gone(claim.Status.ProviderID)
	}
	delete(a.instances, claim.Status.ProviderID)
	return nil
}

func (a *aws) Get(ctx context.Context, id string) (*v1.NodeClaim, error) {
	found, err := a.List(ctx)
	for _, one := range found {
		if one.Status.ProviderID == id {
			return one, nil
		}
	}
	if err == nil {
		err = gone(id)
	}
	return nil, err
}

func (a *aws) List(ctx context.Context) ([]*v1.NodeClaim, error) {
	var nodes corev1.NodeList
	if err := a.client.List(ctx, &nodes, client.MatchingLabels{lostLabel: "node"}); err != nil {
		return nil, err
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for _, node := range nodes.Items {
		delete(a.instances, node.Spec.ProviderID)
	}
	var found []*v1.NodeClaim
	for _, one := range a.instances {
		found = append(found, one.DeepCopy())
	}
	return found, nil
}

func (a *aws) IsDrifted(ctx context.Context, claim *v1.NodeClaim) (cloudprovider.DriftReason, error) {
	now, err := a.fingerprint(ctx, claim.Spec.NodeClassRef.Name)
	if err == nil && claim.Annotations[classHash] != now {
		return "NodeClassDrift", nil
	}
	return "", client.IgnoreNotFound(err)
}

// fingerprint differs for EC2NodeClasses between which nodes drift. What only other nodes would have is left out, as in AWS's
// provider (ec2nodeclass.go, hash: ignore); images and security groups drift by what their terms select there, by the terms here.
func (a *aws) fingerprint(ctx context.Context, name string) (string, error) {
	var class EC2NodeClass
	if err := a.client.Get(ctx, types.NamespacedName{Name: name}, &class); err != nil {
		return "", err
	}
	spec := map[string]any{}
	if err := json.Unmarshal(class.Spec.Raw, &spec); err != nil {
		return "", err
	}
	terms, _ := spec["amiSelectorTerms"].([]any)
	for _, one := range terms {
		if term, _ := one.(map[string]any); term["alias"] != nil { // AWS has one image for each version of Kubernetes
			spec["version"] = a.version
		}
	}
	for _, ignored := range []string{"subnetSelectorTerms", "capacityReservationSelectorTerms", "ipPrefixCount"} {
		delete(spec, ignored)
	}
	text, err := json.Marshal(spec)
	return fmt.Sprintf("%x", hashed(string(text))), err
}

func gone(id string) error {
	return cloudprovider.NewNodeClaimNotFoundError(fmt.Errorf("EC2 has no instance %s", id))
}

func hashed(text string) uint64 {
	hash := fnv.New64a()
	hash.Write([]byte(text))
	return hash.Sum64()
}
