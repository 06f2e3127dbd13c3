"""The command line `ws`, an extra of the package: `pip install 'microvm[cli]'`."""
