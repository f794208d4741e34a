"""A model that is safe to query: described once by a Classifier, queried inside its session."""

from robustkit.classifier.classifier import Classifier as Classifier
