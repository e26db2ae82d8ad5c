"""Looking for hidden values in what others can see."""
