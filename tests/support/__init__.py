"""What several tests share: builders of values, programs that tests start, stand-ins."""
