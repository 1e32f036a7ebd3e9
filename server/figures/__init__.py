"""What is counted and measured, and the page that shows it."""
