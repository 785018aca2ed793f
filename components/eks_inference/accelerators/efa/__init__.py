"""The device plugin for Elastic Fabric Adapter (EFA) interfaces."""
