package main

import (
	"github.com/awslabs/operatorpkg/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// EC2NodeClass is that of AWS's provider, whose spec nothing here reads field by field.
type EC2NodeClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   runtime.RawExtension `json:"spec,omitempty"`
	Status struct {
		Conditions []status.Condition `json:"conditions,omitempty"`
	} `json:"status,omitempty"`
}

// EC2NodeClassList is a list of them.
type EC2NodeClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EC2NodeClass `json:"items"`
}

func init() {
	version := schema.GroupVersion{Group: "karpenter.k8s.aws", Version: "v1"}
	metav1.AddToGroupVersion(scheme.Scheme, version)
	scheme.Scheme.AddKnownTypes(version, &EC2NodeClass{}, &EC2NodeClassList{})
}

func (c *EC2NodeClass) GetConditions() []status.Condition { return c.Status.Conditions }

func (c *EC2NodeClass) SetConditions(conditions []status.Condition) { c.Status.Conditions = conditions }

func (c *EC2NodeClass) StatusConditions(options ...status.ForOption) status.ConditionSet {
	return status.NewReadyConditions().For(c, options...)
}

func (c *EC2NodeClass) DeepCopyObject() runtime.Object {
	copied := &EC2NodeClass{TypeMeta: c.TypeMeta, ObjectMeta: *c.ObjectMeta.DeepCopy(), Spec: *c.Spec.DeepCopy()}
	copied.Status.Conditions = append(copied.Status.Conditions, c.Status.Conditions...)
	return copied
}

func (l *EC2NodeClassList) DeepCopyObject() runtime.Object {
	copied := &EC2NodeClassList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for _, one := range l.Items {
		copied.Items = append(copied.Items, *one.DeepCopyObject().(*EC2NodeClass))
	}
	return copied
}
