"""The ground floor: values and rules that every other room uses. It imports nothing above itself."""
