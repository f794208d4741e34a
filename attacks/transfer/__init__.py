"""Attacks crafted on one model so that their points also break other models."""
