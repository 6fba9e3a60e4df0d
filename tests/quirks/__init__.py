"""Made-up pairs with the quirks of real VOC folders, for the tests."""
