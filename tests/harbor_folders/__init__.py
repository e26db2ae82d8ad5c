"""Harbor task folders, read by SecureBench and by the classes of the package harbor."""
