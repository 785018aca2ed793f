"""The device plugin of Elastic Fabric Adapter interfaces."""
